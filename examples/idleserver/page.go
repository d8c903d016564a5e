package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/wheeldebug"
)

// showPage serves the page of package wheeldebug at addr, which should be an internal address, until
// stop is called.
func showPage(out io.Writer, addr string, wheel *timingwheel.TimingWheel) (stop func(), err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/wheel/", wheeldebug.Handler(wheel))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		srv.Serve(ln) // its error says that it was closed
	}()
	fmt.Fprintf(out, "The wheel is shown at http://%v/debug/wheel/ while the clients talk.\n\n", ln.Addr())
	return func() {
		srv.Close()
		<-ended
	}, nil
}
