"""HTTP itself: connections, bodies, errors, the files of the web page."""
