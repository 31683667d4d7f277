"""The shapes Heddle runs in: images and compose for production, the embedded default, the demo."""
