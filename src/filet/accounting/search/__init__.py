"""Search: where to look next. One loop; a wrong guess costs time or width, never truth."""
