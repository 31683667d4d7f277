"""The faces of Heddle: what people type and what they see. No arithmetic and no reading of tables happens here."""
