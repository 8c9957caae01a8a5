"""Stage prompt: a request's text or messages become token ids."""
