// Package tools holds no code. Its module pins the programs that check this repository, so the
// users of the timing wheel do not depend on them.
//
// At the top of the repository, where go.work joins the modules, they run as go tools:
//
//	go tool staticcheck ./...
//	go tool govulncheck ./...
//	go tool benchstat old.txt new.txt
//	go tool apidiff -m old.api new.api
//
// The versions are the newest that require, with all their dependencies, no more than go 1.25. A
// module that says go 1.25.0 would lift this module, and with it go.work, above that.
package tools
