"""When an iteration and its stages may begin on devices and links that jobs share."""
