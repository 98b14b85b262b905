default: build
build: ; @scripts/bootstrap setup && scripts/bootstrap build default
