"""State that the sidecars of one cluster share: terms, documents, records."""
