// Package tools holds no code. Its module pins the programs that check this repository, so that
// none of them shows in the go.mod or go.sum of somebody who only wants the timing wheel.
//
// At the top of the repository, where go.work joins the modules, each runs as a go tool:
//
//	go tool staticcheck ./...
//	go tool govulncheck ./...
//	go tool benchstat old.txt new.txt
//	go tool apidiff -m old.api new.api
//
// The versions are the newest whose own floor, and that of all they need, is below Go 1.25: a
// requirement that says 1.25.0 would lift this module, and with it go.work, above our own floor.
package tools
