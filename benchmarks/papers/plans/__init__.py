"""Systems that choose execution plans, on what their authors measured."""
