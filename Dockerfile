# The reading room; it starts only after an owner was added:
#   docker build -t rightlung .
#   docker run -it -v rightlung:/data rightlung users add olga --role owner
#   docker run -p 8800:8800 -v rightlung:/data rightlung --host 0.0.0.0 --name localhost
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' 'psycopg[binary]' \
    && useradd --create-home --uid 10001 rightlung && mkdir /data && chown rightlung /data
USER rightlung
ENV XDG_DATA_HOME=/data
VOLUME /data
EXPOSE 8800
HEALTHCHECK --start-period=60s CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8800/healthz')"
ENTRYPOINT ["rightlung", "serve"]
CMD ["--host", "0.0.0.0"]
