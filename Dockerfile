# What README's two commands need, and nothing else:
#   docker build -t remat . && docker run --rm -it remat make demo
FROM debian:12
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates g++ git make python3 python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY . /remat
WORKDIR /remat
CMD ["make", "demo"]
