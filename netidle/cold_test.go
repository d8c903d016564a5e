//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package netidle

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// BenchmarkCold shows what a guard alone costs a Read when a thousand connections are read in
// random order, after other work has used the processor's caches. The inner connection's Read
// returns at once; deadlines are set on real connections. The figures are medians of the difference
// from the inner Read alone, interleaved.
//
//	go test -run '^$' -bench Cold -benchtime 300x ./netidle
func BenchmarkCold(b *testing.B) {
	const conns = 1000
	tw := timingwheel.New()
	defer tw.Stop()
	accepted := make(chan net.Conn, 1)
	listener := NewListener(handListener{nil, accepted}, tw, Limits{Idle: benchIdle})
	var inner, thin, guarded, sockets [conns]net.Conn
	for i := range conns {
		socket, peer := tcpPair(b)
		defer socket.Close()
		peer.Close()
		sockets[i] = socket
		accepted <- socket
		guarded[i], _ = listener.Accept()
		defer guarded[i].Close()
		inner[i] = readyConn{socket}
		guarded[i].(*Conn).inner = inner[i]
		thin[i] = &thinConn{inner[i]}
	}
	order := rand.Perm(conns)
	other := make([]byte, 16<<20)
	p := make([]byte, 1)
	ops := []struct {
		name string
		op   func(i int)
	}{
		{"inner", func(i int) { inner[i].Read(p) }},
		{"thin", func(i int) { thin[i].Read(p) }},
		{"netidle", func(i int) { guarded[i].Read(p) }},
		{"deadline", func(i int) {
			sockets[i].SetReadDeadline(time.Now().Add(benchIdle))
			inner[i].Read(p)
		}},
	}
	spent := make([][]float64, len(ops))
	for b.Loop() {
		for i, o := range ops {
			for j := 0; j < len(other); j += 64 {
				other[j]++
			}
			start := time.Now()
			for _, j := range order {
				o.op(j)
			}
			spent[i] = append(spent[i], float64(time.Since(start))/conns)
		}
	}
	for i, o := range ops[1:] {
		b.ReportMetric(median(spent[i+1])-median(spent[0]), o.name+"-more-ns/read")
	}
}

type readyConn struct{ *net.TCPConn }

func (readyConn) Read([]byte) (int, error) { return 1, nil }
