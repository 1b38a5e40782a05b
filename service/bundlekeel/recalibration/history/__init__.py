"""The form in which cycles are recorded, and how to plan recorded cycles again."""
