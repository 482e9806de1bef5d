"""Commands about the cluster, many of them for administrators."""
