"""The cluster's metadata: an immutable image, and the replay of records that turns one image into the next."""
