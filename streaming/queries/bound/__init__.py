"""Questions that are bound to one snapshot, as all are that belong to one answer."""
