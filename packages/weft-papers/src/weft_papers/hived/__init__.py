"""HiveD: virtual clusters made of cells, around any policy."""
