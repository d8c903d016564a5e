package page

import "log/slog"

var quiet = slog.New(slog.DiscardHandler)
