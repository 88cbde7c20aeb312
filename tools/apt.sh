# Debian packages, for scripts that source this file: only where apt-get may be used, never with more rights.
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
# Package lists may be missing or old on a fresh machine: try, update, try again.
apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 &&
      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1; }
}
