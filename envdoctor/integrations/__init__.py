"""Commands for other programs: tools of the Model Context Protocol, and the notebook extension."""
