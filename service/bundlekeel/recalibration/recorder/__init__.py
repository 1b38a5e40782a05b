"""Write the history of cycles, clean it up, and read it."""
