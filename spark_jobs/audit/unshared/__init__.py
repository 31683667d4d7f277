"""Each query alone: what Heddle is compared with."""
