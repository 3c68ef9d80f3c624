"""The pages of `offsetlake serve`: HTML, JSON and CSV, from the snapshot in memory or from the tables.

`pages.Pages` answers an address. Each module of `views` is one page; nothing here knows sockets or HTTP
libraries.
"""
