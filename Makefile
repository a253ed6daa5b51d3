# What a person types. Everything else is cargo's, or in scripts/.
#
#   make demo        build, serve a volume over NFS and FUSE under ./demo, and say what to type next
#   make demo-stop   stop the demo's server cleanly; everything stays
#   make demo-clean  stop it and remove ./demo
#   make test        install what the tests need (as root, on Debian) and run all of them
#   make ci          the same without installing anything

.PHONY: all demo demo-stop demo-clean test ci build clean help

all: build

build:
	cargo build --release --package server

demo:
	scripts/demo.sh start

demo-stop:
	scripts/demo.sh stop

demo-clean:
	scripts/demo.sh clean

test:
	scripts/install-test-packages.sh
	cargo xtask ci

ci:
	cargo xtask ci

clean:
	cargo clean

help:
	@sed -n 's/^#  //p' Makefile
