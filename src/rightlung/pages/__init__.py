"""Pages: tables, figures and sections, rendered as HTML, Markdown and JSON."""
