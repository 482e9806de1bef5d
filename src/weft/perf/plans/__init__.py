"""How fast execution plans are and what memory they need."""
