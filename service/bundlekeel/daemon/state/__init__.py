"""What the members of one cluster share: terms, documents, records."""
