"""Pages of tables, figures and galleries, rendered as HTML, Markdown and JSON."""
