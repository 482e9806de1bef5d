"""Start times of iterations and stages on devices and links that jobs share."""
