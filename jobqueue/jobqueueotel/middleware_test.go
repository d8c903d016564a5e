package jobqueueotel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spans runs one job, in a bubble, and returns the spans of its attempts and the job at the end.
func spans(
	t *testing.T, handler jobqueue.Handler, body string, opts ...Option,
) (found []sdk.ReadOnlySpan, job *jobqueue.Job) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
		q := jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
		q.Use(Middleware(append(opts, WithTracerProvider(provider))...))
		q.Handle("q", handler, jobqueue.Attempts(2), jobqueue.Backoff(time.Minute))
		id, err := q.Add(t.Context(), "q", []byte(body), jobqueue.In(time.Hour),
			jobqueue.Retain(48*time.Hour))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		require.NoError(t, q.Run(ctx))
		job, err = q.Get(t.Context(), "q", jobqueue.ByID(id))
		require.NoError(t, err)
		require.NoError(t, q.Close())
		require.NoError(t, provider.Shutdown(t.Context()))
		found = recorder.Ended()
		require.Len(t, recorder.Started(), len(found))
	})
	return found, job
}

func TestSpans(t *testing.T) {
	for name, tc := range map[string]struct {
		handler  func(job *jobqueue.Job) error
		attempts []int64
		status   []codes.Code
		text     string // of the first span's status
	}{
		"success": {func(*jobqueue.Job) error { return nil },
			[]int64{1}, []codes.Code{codes.Unset}, ""},
		"an error, then success": {func(job *jobqueue.Job) error {
			if job.Attempts == 1 {
				return errors.New("no")
			}
			return nil
		}, []int64{1, 2}, []codes.Code{codes.Error, codes.Unset}, "no"},
		"panics": {func(*jobqueue.Job) error { panic("ouch") },
			[]int64{1, 2}, []codes.Code{codes.Error, codes.Error}, "the handler panicked"},
		"buried": {func(*jobqueue.Job) error { return jobqueue.Bury("over") },
			[]int64{1}, []codes.Code{codes.Error}, "over"},
		"snoozed": {func(job *jobqueue.Job) error {
			if time.Since(job.Added) < 2*time.Hour {
				return jobqueue.Snooze(time.Hour)
			}
			return nil
		}, []int64{1, 1}, []codes.Code{codes.Unset, codes.Unset}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var began time.Time
			found, job := spans(t, func(ctx context.Context, job *jobqueue.Job) error {
				require.True(t, trace.SpanContextFromContext(ctx).IsValid())
				began = time.Now()
				time.Sleep(3 * time.Second)
				return tc.handler(job)
			}, "")
			require.Len(t, found, len(tc.attempts))
			for i, s := range found {
				require.Equal(t, "process q", s.Name())
				require.Equal(t, trace.SpanKindConsumer, s.SpanKind())
				require.Equal(t, 3*time.Second, s.EndTime().Sub(s.StartTime()))
				require.Equal(t, tc.status[i], s.Status().Code)
				require.Equal(t, scope, s.InstrumentationScope().Name)
				want := []attribute.KeyValue{system.String("jobqueue"),
					operation.String("process"), queue.String("q"), id.String(job.ID.String()),
					attempt.Int64(tc.attempts[i]), lateness.Float64(0)}
				if name == "snoozed" && i == 0 {
					want = append(want, snoozed.Bool(true))
				}
				require.ElementsMatch(t, want, s.Attributes())
				require.Empty(t, s.Links())
			}
			require.Equal(t, tc.text, found[0].Status().Description)
			require.True(t, began.Equal(found[len(found)-1].StartTime()))
			if name == "panics" {
				require.Equal(t, jobqueue.Dead, job.State)
				require.Regexp(t, `^panic: ouch\n\n.*jobqueueotel.TestSpans`, job.LastError,
					"the stack begins where it panicked")
			}
		})
	}
}

// TestLateness delays a job by one that takes the only worker.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
		q := jobqueue.NewMemory()
		q.Use(Middleware(WithTracerProvider(provider)))
		q.Handle("q", func(context.Context, *jobqueue.Job) error {
			time.Sleep(time.Minute)
			return nil
		}, jobqueue.Workers(1))
		for range 2 {
			_, err := q.Add(t.Context(), "q", nil)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, q.Run(ctx))
		require.NoError(t, q.Close())
		require.Len(t, recorder.Ended(), 2)
		require.Contains(t, recorder.Ended()[1].Attributes(), lateness.Float64(60))
	})
}

// TestCarrier links spans to that of Add, whose context is in the body.
func TestCarrier(t *testing.T) {
	p := propagation.TraceContext{}
	adding := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	headers := propagation.MapCarrier{}
	p.Inject(trace.ContextWithSpanContext(t.Context(), adding), headers)
	body, err := json.Marshal(headers)
	require.NoError(t, err)
	carrier := WithCarrier(func(job *jobqueue.Job) propagation.TextMapCarrier {
		m := propagation.MapCarrier{}
		if json.Unmarshal(job.Body, &m) != nil {
			return nil
		}
		return m
	}, p)
	for text, links := range map[string]int{string(body): 1, "{}": 0, "no JSON": 0} {
		found, _ := spans(t, func(context.Context, *jobqueue.Job) error { return nil }, text,
			carrier)
		require.Len(t, found[0].Links(), links, text)
		if links == 1 {
			link := found[0].Links()[0].SpanContext
			require.Equal(t, adding.TraceID(), link.TraceID())
			require.Equal(t, adding.SpanID(), link.SpanID())
			require.NotEqual(t, adding.TraceID(), found[0].SpanContext().TraceID())
		}
	}
}
