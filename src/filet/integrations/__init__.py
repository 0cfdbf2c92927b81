"""Adapters to other libraries. Importing one is the opt-in; nothing else in filet imports them."""
