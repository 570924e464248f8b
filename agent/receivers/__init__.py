"""Where spans come in: OTLP/HTTP on a Unix socket or on localhost, OTLP/gRPC on localhost."""
