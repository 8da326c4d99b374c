"""The reading room: a REST service and a viewer to look at studies, ask models, and judge their answers.

Needs the extra ``serve`` (FastAPI, uvicorn, SQLAlchemy, Alembic, argon2). ``rightlung serve`` starts it.
"""
