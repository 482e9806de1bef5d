"""Wire simulations: a description in, a result out."""
