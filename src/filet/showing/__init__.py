"""What people see: rounded numbers, tables, the privacy statement, columns to export, plots."""
