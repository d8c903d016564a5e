package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "orders"

// cluster starts a cluster in this process.
func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(2), kfake.SeedTopics(3, topic)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func newSink(t *testing.T, addresses []string, opts ...kgo.Opt) *Sink {
	t.Helper()
	sink, err := New(topic, append([]kgo.Opt{kgo.SeedBrokers(addresses...),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}, opts...)...)
	require.NoError(t, err)
	return sink
}

// forward has Run under way with a sink until stop is called.
func forward(t *testing.T, sink *Sink, opts ...jobqueue.HandleOption) (
	q *jobqueue.Client, stop func(),
) {
	t.Helper()
	q = jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.NewTextHandler(t.Output(), nil))))
	q.Forward("q", sink, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		sink.Close()
	})
	t.Cleanup(func() {
		stop()
		require.NoError(t, q.Close())
	})
	return q, stop
}

func statsOf(t *testing.T, q *jobqueue.Client) jobqueue.QueueStats {
	t.Helper()
	stats, err := q.Stats(context.Background())
	require.NoError(t, err)
	require.Len(t, stats.Queues, 1)
	return stats.Queues[0]
}

// add adds n jobs and returns their ids.
func add(t *testing.T, q *jobqueue.Client, n int) (ids []string) {
	t.Helper()
	items := make([]jobqueue.Item, n)
	for i := range items {
		items[i].Body = fmt.Append(nil, i)
	}
	added, err := q.AddMany(t.Context(), "q", items)
	require.NoError(t, err)
	for _, id := range added {
		ids = append(ids, id.String())
	}
	return ids
}

func waitForAcks(t *testing.T, q *jobqueue.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return statsOf(t, q).Acked == int64(n) },
		2*time.Minute, 5*time.Millisecond, "all are confirmed")
}

// consume returns the first records of the topic, until it has n different ones, by what id says.
func consume(t *testing.T, addresses []string, n int, id func(*kgo.Record) string,
	opts ...kgo.Opt) map[string][]*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addresses...),
		kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := map[string][]*kgo.Record{}
	for len(found) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d", len(found), n)
		fetches.EachRecord(func(r *kgo.Record) {
			found[id(r)] = append(found[id(r)], r)
		})
	}
	return found
}

// header returns the id of a record.
func header(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == MessageID {
			return string(h.Value)
		}
	}
	return ""
}

func requireAll(t *testing.T, ids []string, found map[string][]*kgo.Record) {
	t.Helper()
	require.Len(t, found, len(ids))
	twice := 0
	for _, id := range ids {
		require.NotEmpty(t, found[id], "%s is lost", id)
		twice += len(found[id]) - 1
	}
	t.Logf("%d jobs; %d came twice", len(ids), twice)
}

func TestEachJobIsARecord(t *testing.T) {
	c := cluster(t)
	q, stop := forward(t, newSink(t, c.ListenAddrs()))
	ids := add(t, q, 3000)
	id, err := q.Add(t.Context(), "q", []byte("body"), jobqueue.Key("order-17"))
	require.NoError(t, err)
	waitForAcks(t, q, 3001)
	stop()
	found := consume(t, c.ListenAddrs(), 3001, header)
	for i, id := range ids {
		require.Len(t, found[id], 1)
		r := found[id][0]
		require.Equal(t, fmt.Sprint(i), string(r.Value))
		require.Empty(t, r.Key)
		require.Equal(t, kgo.RecordHeader{Key: Queue, Value: []byte("q")}, r.Headers[1])
	}
	r := found[id.String()][0]
	require.Equal(t, "order-17", string(r.Key))
	require.Equal(t, "body", string(r.Value))
}

// answer returns a response to a Produce request that has the same error for each partition.
func answer(req kmsg.Request, code int16) kmsg.Response {
	produce := req.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range produce.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// TestWhatABrokerRefuses: what the broker says of the record costs an attempt.
func TestWhatABrokerRefuses(t *testing.T) {
	for _, refusal := range []*kerr.Error{
		kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.PolicyViolation,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			c := cluster(t)
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				return answer(req, refusal.Code), nil, true // once
			})
			q, stop := forward(t, newSink(t, c.ListenAddrs()),
				jobqueue.Backoff(10*time.Millisecond), jobqueue.Attempts(2))
			ids := add(t, q, 1)
			waitForAcks(t, q, 1)
			require.Equal(t, int64(1), statsOf(t, q).Retried)
			stop()
			requireAll(t, ids, consume(t, c.ListenAddrs(), 1, header))
		})
	}
	t.Run("no such topic", func(t *testing.T) {
		c := cluster(t)
		sink, err := New("not-there", kgo.SeedBrokers(c.ListenAddrs()...),
			kgo.MetadataMinAge(10*time.Millisecond), kgo.UnknownTopicRetries(1))
		require.NoError(t, err)
		q, _ := forward(t, sink, jobqueue.Attempts(1))
		add(t, q, 1)
		require.Eventually(t, func() bool { return statsOf(t, q).Dead == 1 },
			time.Minute, 5*time.Millisecond)
		jobs, _, err := q.List(t.Context(), "q", jobqueue.Dead, "", 1)
		require.NoError(t, err)
		require.Contains(t, jobs[0].LastError, "UNKNOWN_TOPIC_OR_PARTITION")
	})
	t.Run("one too large among others", func(t *testing.T) {
		c := cluster(t)
		q, stop := forward(t, newSink(t, c.ListenAddrs()), jobqueue.Attempts(1))
		require.NoError(t, q.Pause(t.Context(), "q"))
		ids := add(t, q, 20)
		_, err := q.Add(t.Context(), "q", make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, q.Resume(t.Context(), "q"))
		waitForAcks(t, q, 20)
		require.Eventually(t, func() bool { return statsOf(t, q).Dead == 1 },
			time.Minute, 5*time.Millisecond)
		jobs, _, err := q.List(t.Context(), "q", jobqueue.Dead, "", 1)
		require.NoError(t, err)
		require.Contains(t, jobs[0].LastError, "MESSAGE_TOO_LARGE")
		stop()
		requireAll(t, ids, consume(t, c.ListenAddrs(), 20, header))
	})
}

// TestBadWeather: brokers answer with errors that pass, cut connections, and lose answers after
// they have stored the records. No attempt fails, and an idempotent client stores nothing twice.
func TestBadWeather(t *testing.T) {
	c := cluster(t)
	passing := []int16{kerr.NotLeaderForPartition.Code, kerr.RequestTimedOut.Code,
		kerr.NotEnoughReplicas.Code, kerr.KafkaStorageError.Code}
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch n := requests.Add(1); {
		case n%3 == 0:
			return answer(req, passing[int(n/3)%len(passing)]), nil, true
		case n%5 == 0:
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	q, stop := forward(t, newSink(t, c.ListenAddrs()), jobqueue.Attempts(1), jobqueue.Workers(16))
	var ids []string
	for range 50 {
		ids = append(ids, add(t, q, 20)...)
		time.Sleep(10 * time.Millisecond)
	}
	waitForAcks(t, q, len(ids))
	require.Greater(t, requests.Load(), int32(20))
	require.Zero(t, statsOf(t, q).Retried+statsOf(t, q).Buried)
	stop()
	requireAll(t, ids, consume(t, c.ListenAddrs(), len(ids), header))
}

// TestABrokerThatDoesNotAnswer hangs with records on their way.
func TestABrokerThatDoesNotAnswer(t *testing.T) {
	c := cluster(t)
	var hangs atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, hangs.Load()
	})
	sink := newSink(t, c.ListenAddrs())
	sink.Timeout = 300 * time.Millisecond
	q, stop := forward(t, sink, jobqueue.Attempts(1), jobqueue.Workers(100))
	ids := add(t, q, 100)
	waitForAcks(t, q, 100)
	hangs.Store(true)
	ids = append(ids, add(t, q, 400)...)
	time.Sleep(3 * time.Second)
	require.Equal(t, int64(100), statsOf(t, q).Acked)
	require.LessOrEqual(t, statsOf(t, q).Running, 100)
	hangs.Store(false)
	waitForAcks(t, q, 500)
	require.Zero(t, statsOf(t, q).Retried+statsOf(t, q).Buried)
	stop()
	requireAll(t, ids, consume(t, c.ListenAddrs(), 500, header))
}

// TestRunEndsWhileABrokerHangs: no later than the time limit of the sink.
func TestRunEndsWhileABrokerHangs(t *testing.T) {
	c := cluster(t)
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, true
	})
	sink := newSink(t, c.ListenAddrs())
	sink.Timeout = 500 * time.Millisecond
	q, stop := forward(t, sink, jobqueue.Attempts(1))
	add(t, q, 100)
	require.Eventually(t, func() bool { return requests.Load() > 0 }, time.Minute, time.Millisecond)
	stop()
	jobs, _, err := q.List(t.Context(), "q", jobqueue.Ready, "", 1000)
	require.NoError(t, err)
	require.Len(t, jobs, 100)
	for _, job := range jobs {
		require.Zero(t, job.Attempts)
	}
}

// TestABrokerThatComesLater: the cluster is not there at first.
func TestABrokerThatComesLater(t *testing.T) {
	port, err := servers.FreePort()
	require.NoError(t, err)
	addresses := []string{fmt.Sprintf("127.0.0.1:%d", port)}
	sink := newSink(t, addresses)
	sink.Timeout = 300 * time.Millisecond
	q, stop := forward(t, sink, jobqueue.Attempts(1))
	ids := add(t, q, 1000)
	time.Sleep(2 * time.Second)
	require.Zero(t, statsOf(t, q).Acked)
	cluster(t, kfake.NumBrokers(1), kfake.Ports(port))
	waitForAcks(t, q, 1000)
	stop()
	requireAll(t, ids, consume(t, addresses, 1000, header))
}

func TestWhatIsTheWeather(t *testing.T) {
	for _, err := range []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.UnknownServerError, kgo.ErrClientClosed, kgo.ErrRecordTimeout,
		context.Canceled, errors.New("i/o timeout")} {
		require.ErrorIs(t, judge(fmt.Errorf("client: %w", err)), jobqueue.ErrUnavailable)
	}
}

func TestWhatNewRefuses(t *testing.T) {
	_, err := New(topic, kgo.MaxBufferedRecords(-1))
	require.ErrorContains(t, err, "kafka: ")
	sink, err := New(topic)
	require.NoError(t, err)
	sink.Close()
	errs := sink.Send(t.Context(), make([]*jobqueue.Job, 2))
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[1], jobqueue.ErrUnavailable)
	require.ErrorContains(t, errs[1], "closed")
}
