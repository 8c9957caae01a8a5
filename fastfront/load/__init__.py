"""The load generator behind `fastfront bench serve`: asks a server of the OpenAI API, and says how it answered."""
