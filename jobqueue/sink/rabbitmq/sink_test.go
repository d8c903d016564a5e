package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// The tests share a server, which the first that needs it starts.
var shared struct {
	once   sync.Once
	folder string
	server *servers.RabbitMQ
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	os.RemoveAll(shared.folder)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func server(t *testing.T) *servers.RabbitMQ {
	t.Helper()
	program, ok := servers.FindRabbitMQ()
	if !ok {
		servers.Missing(t, "RabbitMQ is not installed; on Debian: apt-get install rabbitmq-server")
	}
	shared.once.Do(func() {
		if shared.folder, shared.err = os.MkdirTemp("", "rabbitmq"); shared.err == nil {
			shared.server, shared.err = servers.StartRabbitMQ(program, shared.folder)
		}
	})
	require.NoError(t, shared.err)
	return shared.server
}

// declare makes a durable queue.
func declare(t *testing.T, url, queue string, args amqp.Table) {
	t.Helper()
	withChannel(t, url, func(ch *amqp.Channel) {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		require.NoError(t, err)
	})
}

func withChannel(t *testing.T, url string, f func(ch *amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(t, err)
	f(ch)
}

// drain returns all messages of a queue.
func drain(t *testing.T, url, queue string) (all []amqp.Delivery) {
	t.Helper()
	withChannel(t, url, func(ch *amqp.Channel) {
		for {
			d, ok, err := ch.Get(queue, true)
			require.NoError(t, err)
			if !ok {
				return
			}
			all = append(all, d)
		}
	})
	return all
}

// messages returns how often a queue has each message.
func messages(t *testing.T, url, queue string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, d := range drain(t, url, queue) {
		found[d.MessageId]++
	}
	return found
}

// forward has Run under way with a sink until stop is called.
func forward(t *testing.T, queue string, sink *Sink, opts ...jobqueue.HandleOption) (
	q *jobqueue.Client, stop func(),
) {
	t.Helper()
	q = jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.NewTextHandler(t.Output(), nil))))
	q.Forward(queue, sink, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, sink.Close())
	})
	t.Cleanup(func() {
		stop()
		require.NoError(t, q.Close())
	})
	return q, stop
}

func newSink(t *testing.T, url, exchange string, opts ...Option) *Sink {
	t.Helper()
	sink, err := New(url, exchange, opts...)
	require.NoError(t, err)
	return sink
}

func statsOf(t *testing.T, q *jobqueue.Client) jobqueue.QueueStats {
	t.Helper()
	stats, err := q.Stats(context.Background())
	require.NoError(t, err)
	require.Len(t, stats.Queues, 1)
	return stats.Queues[0]
}

// eventually waits for what is to come.
func eventually(t *testing.T, what func() bool, about string) {
	t.Helper()
	require.Eventually(t, what, 2*time.Minute, 10*time.Millisecond, about)
}

func TestEachJobIsAMessage(t *testing.T) {
	url := server(t).URL
	declare(t, url, "orders/expire", nil)
	q, stop := forward(t, "orders/expire", newSink(t, url, "",
		WithMessage(func(job *jobqueue.Job, m *amqp.Publishing) {
			m.Headers = amqp.Table{"attempt": int32(job.Attempts)}
		})), jobqueue.Workers(700))
	items := make([]jobqueue.Item, 3000)
	for i := range items {
		items[i].Body = fmt.Append(nil, i)
	}
	due := time.Now().Add(50 * time.Millisecond)
	ids, err := q.AddMany(t.Context(), "orders/expire", items, jobqueue.At(due))
	require.NoError(t, err)
	eventually(t, func() bool { return statsOf(t, q).Acked == 3000 }, "all are confirmed")
	stop()
	all := map[string]amqp.Delivery{}
	for _, d := range drain(t, url, "orders/expire") {
		require.NotContains(t, all, d.MessageId)
		all[d.MessageId] = d
	}
	require.Len(t, all, 3000)
	for i, id := range ids {
		d := all[id.String()]
		require.Equal(t, fmt.Sprint(i), string(d.Body))
		require.Equal(t, amqp.Persistent, d.DeliveryMode)
		require.Equal(t, "orders/expire", d.Type)
		require.Equal(t, int32(1), d.Headers["attempt"])
		require.WithinDuration(t, due, d.Timestamp, time.Second)
	}
}

// TestWhatTheBrokerRefuses: a message that is refused is a failed attempt, and no other suffers.
func TestWhatTheBrokerRefuses(t *testing.T) {
	url := server(t).URL
	long := strings.Repeat("x", 256)
	for name, test := range map[string]struct {
		exchange string
		args     amqp.Table
		opt      Option
		last     string
		good     int // of ten jobs, of which the last is the bad one
	}{
		"no queue takes it": {
			opt:  WithRoutingKey(func(job *jobqueue.Job) string { return job.Queue + job.Key }),
			last: "no queue takes the message: 312 NO_ROUTE", good: 9,
		},
		"no exchange": {exchange: "not-there", last: "no exchange 'not-there'"},
		"full queue": {
			args: amqp.Table{"x-max-length": int32(9), "x-overflow": "reject-publish"},
			last: "the broker refused the message", good: 9,
		},
		"closes the channel": {
			opt: WithMessage(func(job *jobqueue.Job, m *amqp.Publishing) {
				if job.Key != "" {
					m.UserId = "mallory"
				}
			}),
			last: "PRECONDITION_FAILED", good: 9,
		},
		"too long a routing key": {
			opt: WithRoutingKey(func(job *jobqueue.Job) string {
				return job.Queue + strings.Repeat(long, len(job.Key))
			}),
			last: "is longer than 255 bytes", good: 9,
		},
		"a header that cannot be sent": {
			opt: WithMessage(func(job *jobqueue.Job, m *amqp.Publishing) {
				if job.Key != "" {
					m.Headers = amqp.Table{"when": time.Second}
				}
			}),
			last: "not supported", good: 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			queue := strings.ReplaceAll(name, " ", "-")
			declare(t, url, queue, test.args)
			var opts []Option
			if test.opt != nil {
				opts = append(opts, test.opt)
			}
			sink := newSink(t, url, test.exchange, opts...)
			q, stop := forward(t, queue, sink, jobqueue.Backoff(time.Hour), jobqueue.Attempts(2))
			require.NoError(t, q.Pause(t.Context(), queue)) // so that they come together
			_, err := q.AddMany(t.Context(), queue, make([]jobqueue.Item, 9))
			require.NoError(t, err)
			time.Sleep(2 * time.Millisecond)
			bad, err := q.Add(t.Context(), queue, nil, jobqueue.Key("k"))
			require.NoError(t, err)
			require.NoError(t, q.Resume(t.Context(), queue))
			eventually(t, func() bool {
				s := statsOf(t, q)
				return s.Acked+s.Retried == 10
			}, "each has an end")
			require.Equal(t, int64(test.good), statsOf(t, q).Acked)
			if test.last != "the broker refused the message" { // any of the ten may be that one
				job, err := q.Get(t.Context(), queue, jobqueue.ByID(bad))
				require.NoError(t, err)
				require.Contains(t, job.LastError, test.last)
				require.Equal(t, 1, job.Attempts)
			}
			stop()
			require.Len(t, messages(t, url, queue), test.good)
		})
	}
}

// TestTheServerStopsWhilePublishing: it is stopped, and killed as kill -9 does, in the middle of
// publishing, and comes back. Every job is there afterwards, and none has failed an attempt.
func TestTheServerStopsWhilePublishing(t *testing.T) {
	s := server(t)
	declare(t, s.URL, "weather", nil)
	q, stop := forward(t, "weather", newSink(t, s.URL, ""), jobqueue.Attempts(1))
	var ids []jobqueue.ID
	var over atomic.Bool
	adding := make(chan struct{})
	go func() {
		defer close(adding)
		for !over.Load() {
			some, err := q.AddMany(context.Background(), "weather", make([]jobqueue.Item, 20))
			if !assert.NoError(t, err) {
				return
			}
			ids = append(ids, some...)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	more := func() {
		before := statsOf(t, q).Acked
		eventually(t, func() bool { return statsOf(t, q).Acked > before+100 }, "it publishes")
	}
	for _, end := range []func(){s.Stop, s.Kill, s.Kill} {
		more()
		end()
		time.Sleep(time.Second)
		require.NoError(t, s.Start())
	}
	more()
	over.Store(true)
	<-adding
	all := func() bool { return statsOf(t, q).Acked == int64(len(ids)) }
	eventually(t, all, "all are confirmed")
	stats := statsOf(t, q)
	require.Zero(t, stats.Retried+stats.Buried)
	stop()
	found := messages(t, s.URL, "weather")
	twice := 0
	for _, id := range ids {
		require.NotZero(t, found[id.String()], "%v is lost", id)
		twice += found[id.String()] - 1
	}
	require.Len(t, found, len(ids), "messages that were never added")
	t.Logf("%d jobs; %d came twice", len(ids), twice)
}

// TestAServerThatHangs does not answer, with its connections open, while much is to be written.
func TestAServerThatHangs(t *testing.T) {
	s := server(t)
	declare(t, s.URL, "hangs", nil)
	q, stop := forward(t, "hangs", newSink(t, s.URL, "", WithTimeout(time.Second)),
		jobqueue.Attempts(1))
	_, err := q.Add(t.Context(), "hangs", nil)
	require.NoError(t, err)
	eventually(t, func() bool { return statsOf(t, q).Acked == 1 }, "it publishes")
	if err := s.Freeze(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	thaw := sync.OnceFunc(func() { require.NoError(t, s.Thaw()) })
	defer thaw()
	items := make([]jobqueue.Item, 300)
	for i := range items {
		items[i].Body = make([]byte, 100_000)
	}
	_, err = q.AddMany(t.Context(), "hangs", items)
	require.NoError(t, err)
	time.Sleep(5 * time.Second)
	thaw()
	eventually(t, func() bool { return statsOf(t, q).Acked == 301 }, "all are confirmed")
	require.Zero(t, statsOf(t, q).Buried)
	stop()
	require.Len(t, messages(t, s.URL, "hangs"), 301)
}

// TestAServerThatTakesNoMessages is low on memory, by its own measure.
func TestAServerThatTakesNoMessages(t *testing.T) {
	s := server(t)
	declare(t, s.URL, "alarm", nil)
	q, stop := forward(t, "alarm", newSink(t, s.URL, "", WithTimeout(time.Second)),
		jobqueue.Attempts(1))
	_, err := q.Add(t.Context(), "alarm", nil)
	require.NoError(t, err)
	eventually(t, func() bool { return statsOf(t, q).Acked == 1 }, "it publishes")
	require.NoError(t, s.Control("set_vm_memory_high_watermark", "0.00001"))
	_, err = q.AddMany(t.Context(), "alarm", make([]jobqueue.Item, 1000))
	require.NoError(t, err)
	time.Sleep(5 * time.Second)
	// It blocks a connection with the first message that it reads.
	require.Less(t, statsOf(t, q).Acked, int64(600))
	require.NoError(t, s.Control("set_vm_memory_high_watermark", "0.4"))
	eventually(t, func() bool { return statsOf(t, q).Acked == 1001 }, "all are confirmed")
	require.Zero(t, statsOf(t, q).Buried)
	stop()
	found := messages(t, s.URL, "alarm")
	require.Len(t, found, 1001)
	for id, times := range found {
		require.LessOrEqual(t, times, 2, "%s came with each attempt", id)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	port, err := servers.FreePort()
	require.NoError(t, err)
	q, stop := forward(t, "q", newSink(t, fmt.Sprintf("amqp://127.0.0.1:%d", port), ""),
		jobqueue.Attempts(1))
	_, err = q.Add(t.Context(), "q", nil)
	require.NoError(t, err)
	time.Sleep(time.Second)
	stop()
	stats := statsOf(t, q)
	require.Equal(t, 1, stats.Ready)
	require.Zero(t, stats.Buried)
}

func TestAWrongPassword(t *testing.T) {
	url := strings.Replace(server(t).URL, "guest:guest", "guest:secret", 1)
	sink := newSink(t, url, "")
	errs := sink.Send(t.Context(), make([]*jobqueue.Job, 2))
	require.Len(t, errs, 2)
	for _, err := range errs {
		require.ErrorIs(t, err, jobqueue.ErrUnavailable)
		require.ErrorContains(t, err, "username or password")
	}
	require.NoError(t, sink.Close())
	require.ErrorContains(t, sink.Send(t.Context(), make([]*jobqueue.Job, 1))[0], "closed")
}

func TestWhatNewRefuses(t *testing.T) {
	_, err := New("http://localhost", "")
	require.ErrorContains(t, err, "rabbitmq: ")
	require.Panics(t, func() { WithTimeout(0) })
}

// BenchmarkForward shows confirmed messages a second.
func BenchmarkForward(b *testing.B) {
	program, ok := servers.FindRabbitMQ()
	if !ok {
		b.Skip("RabbitMQ is not installed")
	}
	s, err := servers.StartRabbitMQ(program, b.TempDir())
	require.NoError(b, err)
	defer s.Close()
	conn, err := amqp.Dial(s.URL)
	require.NoError(b, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b, err)
	_, err = ch.QueueDeclare("bench", true, false, false, false, nil)
	require.NoError(b, err)
	for _, workers := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			sink, err := New(s.URL, "")
			require.NoError(b, err)
			q := jobqueue.NewMemory()
			defer q.Close()
			defer sink.Close()
			q.Forward("bench", sink, jobqueue.Workers(workers))
			for done := 0; done < b.N; {
				n := min(b.N-done, 1000)
				items := make([]jobqueue.Item, n)
				for i := range items {
					items[i].Body = make([]byte, 100)
				}
				_, err := q.AddMany(b.Context(), "bench", items)
				require.NoError(b, err)
				done += n
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			b.ResetTimer()
			go func() { ended <- q.Run(ctx) }()
			for {
				stats, err := q.Stats(b.Context())
				require.NoError(b, err)
				if stats.Queues[0].Acked == int64(b.N) {
					break
				}
				time.Sleep(time.Millisecond)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			cancel()
			require.NoError(b, <-ended)
		})
	}
}
