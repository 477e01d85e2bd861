"""Our retriever as LangChain, LlamaIndex and MCP objects; the one home of those types."""
