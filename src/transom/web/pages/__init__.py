"""One module per page of the console; `transom.web.page_table` lists them."""
