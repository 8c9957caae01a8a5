"""The engine's side of the wire: what every engine process of ours, mock or real, is towards its frontends."""
