"""The process of `offsetlake serve`: one snapshot kept up to date, the listeners that respond from it, and a
clean shutdown. `serving` is the entry."""
