// Hands the figures of the page to ECharts, and the raw data to the download buttons.
//
// Everything is drawn from the JSON in the page; nothing is fetched and nothing is computed here but
// places on the screen. Colours and symbols belong to arms and are the same in every chart; the
// colours are told apart with any kind of colour vision (after Okabe and Ito).
"use strict";
(() => {
  const ARMS = {
    plain: ["#0072b2", "#62b0ea", "circle"],
    control: ["#7d8791", "#8f9aa5", "rect"],
    idle: ["#b07a00", "#e6b422", "triangle"],
    sealed: ["#c44a00", "#ff8f52", "diamond"],
    gocryptfs: ["#00805f", "#3fcf9f", "roundRect"],
    own: ["#a3508a", "#e394c6", "pin"],
  };
  const OTHERS = [
    ["#4a3f9f", "#a49bf5", "triangle"],
    ["#6b6b00", "#cfcf4a", "diamond"],
    ["#00707f", "#4fc9d8", "rect"],
    ["#8a3a3a", "#f09a9a", "circle"],
  ];
  const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3], [14, 4]];
  const NARROW = 560;

  const report = { figures: 0, drawn: 0, errors: [] };
  window.tidelockReport = report;
  window.addEventListener("error", (event) => report.errors.push(String(event.message)));

  const root = document.documentElement;
  root.classList.add("js");
  const data = JSON.parse(document.querySelector("script#figures").textContent);
  report.figures = data.length;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let paper = false;

  const known = [];
  function look(arm) {
    if (ARMS[arm]) return ARMS[arm];
    if (!known.includes(arm)) known.push(arm);
    return OTHERS[known.indexOf(arm) % OTHERS.length];
  }
  const night = () => dark.matches && !paper;
  const colour = (arm) => look(arm)[night() ? 1 : 0];
  const symbol = (arm) => look(arm)[2];
  function theme() {
    return night()
      ? { ink: "#e4e7ea", soft: "#9aa4ae", line: "#31373d", band: "rgba(154,164,174,.22)", page: "#14171a", panel: "#20252a" }
      : { ink: "#1c2024", soft: "#5c6570", line: "#dfe2e5", band: "rgba(92,101,112,.16)", page: "#fbfbfa", panel: "#ffffff" };
  }

  const FONT = "'Segoe UI', 'Liberation Sans', Arial, system-ui, sans-serif";
  const ruler = document.createElement("canvas").getContext("2d");
  function widest(texts) {
    ruler.font = "12px " + FONT;
    return Math.max(0, ...texts.map((text) => ruler.measureText(text).width));
  }

  const grouped = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

  // A tip is made of text nodes, so that no name in the data can become markup.
  function tip(lines) {
    const box = document.createElement("div");
    lines.forEach((line, at) => {
      const row = document.createElement("div");
      row.textContent = line;
      if (at === 0) row.style.fontWeight = "600";
      box.append(row);
    });
    return box;
  }

  // Room for the labels of a vertical axis from 0 to above `largest`, and for names below.
  const around = (largest, top) => ({
    left: Math.ceil(widest([grouped.format(largest * 1.25), grouped.format(largest)])) + 16,
    right: 20, top, bottom: 48, containLabel: false,
  });

  function common(t, names) {
    return {
      animation: false,
      backgroundColor: "transparent",
      textStyle: { color: t.ink, fontFamily: FONT, fontSize: 12 },
      legend: {
        data: names, type: "scroll", left: 0, top: 0, itemGap: 16, itemWidth: 20, itemHeight: 10,
        textStyle: { color: t.ink }, pageTextStyle: { color: t.soft }, pageIconColor: t.soft,
      },
      tooltip: {
        trigger: "item", confine: true, backgroundColor: t.panel, borderColor: t.line,
        textStyle: { color: t.ink, fontSize: 12 },
        formatter: (item) => (item.data && item.data.tip ? tip(item.data.tip) : ""),
      },
    };
  }
  const valueAxis = (t, name) => ({
    type: "value", name, nameTextStyle: { color: t.soft, align: "left" },
    axisLabel: { color: t.soft, hideOverlap: true, formatter: (value) => grouped.format(value) },
    axisLine: { show: false }, axisTick: { show: false }, splitLine: { lineStyle: { color: t.line } },
  });

  // Intervals and their blocks, one row each, the first on top.
  function ratios(figure, t, width) {
    const { rows } = figure.chart;
    const arms = [...new Set(rows.map((row) => row.arm))];
    const narrow = width < NARROW;
    const bands = {
      type: "custom", silent: true, z: 0, encode: { x: [1, 2], y: 0 },
      data: rows.map((row, at) => (row.control ? [at, row.control[0], row.control[1]] : null)).filter(Boolean),
      renderItem: (_, api) => {
        const [left, y] = api.coord([api.value(1), api.value(0)]);
        const [right] = api.coord([api.value(2), api.value(0)]);
        const height = api.size([0, 1])[1];
        return { type: "rect", shape: { x: left, y: y - height / 2, width: Math.max(right - left, 1), height }, style: { fill: t.band } };
      },
    };
    const series = [bands];
    for (const arm of arms) {
      const mine = rows.map((row, at) => ({ row, at })).filter(({ row }) => row.arm === arm);
      const fill = colour(arm);
      // The legend shows the first series of a name.
      series.push({
        name: arm, type: "scatter", symbol: symbol(arm), symbolSize: 11, z: 4,
        itemStyle: { color: fill, borderColor: t.page, borderWidth: 1.5 },
        data: mine.map(({ row, at }) => ({ value: [row.mid, at], itemStyle: row.untold ? { color: t.page, borderColor: fill } : {}, tip: [arm + (row.label ? ", " + row.label : ""), row.text] })),
      });
      series.push({
        name: arm, type: "scatter", symbol: "circle", symbolSize: 5, z: 2, itemStyle: { color: fill },
        data: mine.flatMap(({ row, at }) => row.pairs.map(([block, ratio], place) => {
          const far = row.outliers.includes(block);
          // Blocks of one row are spread a little, by their place, to be seen apart.
          const off = ((place * 7) % 11) / 11 - 0.45;
          return {
            value: [ratio, at], symbolOffset: [0, off * 9], symbolSize: far ? 7 : 5,
            itemStyle: far ? { color: "transparent", borderColor: fill, borderWidth: 1.5 } : { color: fill, opacity: 0.38 },
            tip: [arm + (row.label ? ", " + row.label : ""), "block " + block + ": " + ratio.toFixed(3) + (far ? ", far from the others" : "")],
          };
        })),
      });
      series.push({
        name: arm, type: "custom", z: 3, silent: true, itemStyle: { color: fill }, encode: { x: [1, 2], y: 0 },
        data: mine.map(({ row, at }) => [at, row.low, row.high, row.untold ? 1 : 0]),
        renderItem: (_, api) => {
          const lineDash = api.value(3) ? [3, 3] : null;
          const [left, y] = api.coord([api.value(1), api.value(0)]);
          const [right] = api.coord([api.value(2), api.value(0)]);
          const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: fill, lineWidth: 2, lineDash } });
          return { type: "group", children: [line(left, y, right, y), line(left, y - 4, left, y + 4), line(right, y - 4, right, y + 4)] };
        },
      });
    }
    series[1].markLine = {
      silent: true, symbol: "none", label: { show: false }, data: [{ xAxis: 1 }],
      lineStyle: { color: t.soft, type: "solid", width: 1 },
    };
    const ends = rows.flatMap((row) => [row.low, row.high, ...(row.control || []), ...row.pairs.map((pair) => pair[1])]);
    const reach = Math.max(0.01, ...ends.map((end) => Math.abs(end - 1)));
    const step = reach > 0.5 ? 0.25 : reach > 0.2 ? 0.1 : reach > 0.08 ? 0.05 : reach > 0.03 ? 0.02 : 0.01;
    const low = Math.max(0, Math.floor((Math.min(1, ...ends) - step * 0.2) / step) * step);
    const high = Math.ceil((Math.max(1, ...ends) + step * 0.2) / step) * step;
    const room = Math.min(narrow ? 104 : 280, Math.ceil(widest(rows.map((row) => row.label))) + 4);
    const first = rows.map((row, at) => at === 0 || rows[at - 1].label !== row.label);
    return {
      height: 76 + Math.max(rows.length * 26, 40),
      option: {
        ...common(t, arms),
        grid: { left: room + 14, right: 20, top: 34, bottom: 30, containLabel: false },
        xAxis: { ...valueAxis(t), min: low, max: high, interval: (high - low) / step > 9 ? undefined : step,
          axisLabel: { color: t.soft, hideOverlap: true, formatter: (value) => value.toFixed(2) } },
        yAxis: {
          type: "category", inverse: true, data: rows.map((_, at) => String(at)),
          axisLine: { show: false }, axisTick: { show: false },
          splitLine: { show: true, interval: (at) => at === 0 || first[at], lineStyle: { color: t.line } },
          axisLabel: {
            color: t.ink, interval: 0, width: room, overflow: "break", lineHeight: 14, align: "right",
            formatter: (at) => (first[at] ? rows[at].label || " " : ""),
          },
        },
        series,
      },
    };
  }

  // Medians over levels, with extremes and all trials.
  function lines(figure, t) {
    const { x, y, lines: all } = figure.chart;
    const series = [];
    all.forEach((line, place) => {
      const fill = colour(line.arm);
      const name = line.arm;
      const shift = (place - (all.length - 1) / 2) * 5;
      series.push({
        name, type: "line", z: 3, symbol: symbol(name), symbolSize: 9, lineStyle: { color: fill, width: 2 },
        itemStyle: { color: fill, borderColor: t.page, borderWidth: 1 },
        data: line.points.map((p) => ({ value: [p.x, p.mid], tip: [name, p.text] })),
      });
      series.push({
        name, type: "scatter", symbol: "circle", symbolSize: 4, z: 2, itemStyle: { color: fill, opacity: 0.32 },
        data: line.points.flatMap((p) => p.all.map((value) => ({ value: [p.x, value], symbolOffset: [shift, 0], tip: [name, grouped.format(value) + " " + y] }))),
      });
      series.push({
        name, type: "custom", z: 1, silent: true, itemStyle: { color: fill }, encode: { x: 0, y: [1, 2] },
        data: line.points.map((p) => [p.x, p.low, p.high]),
        renderItem: (_, api) => {
          const [at, bottom] = api.coord([api.value(0), api.value(1)]);
          const [, top] = api.coord([api.value(0), api.value(2)]);
          return { type: "line", shape: { x1: at + shift, y1: bottom, x2: at + shift, y2: top }, style: { stroke: fill, lineWidth: 1.5, opacity: 0.7 } };
        },
      });
    });
    const places = x.ticks.map(([at]) => at);
    const names = new Map(x.ticks.map(([at, text]) => [at.toPrecision(9), text]));
    const spread = places[places.length - 1] - places[0];
    const edge = x.logarithmic ? 1.25 : 0;
    const from = edge ? places[0] / edge : places[0] - spread * 0.06;
    const to = edge ? places[places.length - 1] * edge : places[places.length - 1] + spread * 0.06;
    return {
      height: 308,
      option: {
        ...common(t, all.map((line) => line.arm)),
        grid: around(Math.max(...all.flatMap((line) => line.points.map((p) => p.high))), 58),
        xAxis: {
          type: x.logarithmic ? "log" : "value", min: from, max: to, name: x.title, nameLocation: "middle", nameGap: 28,
          nameTextStyle: { color: t.soft }, splitLine: { show: false }, axisLine: { onZero: false, lineStyle: { color: t.soft } },
          axisTick: { customValues: places, lineStyle: { color: t.soft } },
          axisLabel: { customValues: places, color: t.soft, hideOverlap: true, showMinLabel: true, showMaxLabel: true, formatter: (at) => names.get(Number(at).toPrecision(9)) || "" },
        },
        yAxis: { ...valueAxis(t, y), min: 0 },
        series,
      },
    };
  }

  // Values over time: a thick median, thin blocks.
  function times(figure, t) {
    const { y, tracks } = figure.chart;
    const series = [];
    for (const track of tracks) {
      const fill = colour(track.arm);
      const type = DASHES[track.style % DASHES.length];
      series.push({
        name: track.name, type: "line", symbol: "none", z: 3, itemStyle: { color: fill },
        lineStyle: { color: fill, width: 2.2, type }, data: track.median, emphasis: { disabled: true },
      });
      for (const block of track.blocks) {
        series.push({
          name: track.name, type: "line", silent: true, symbol: "none", z: 1, itemStyle: { color: fill },
          lineStyle: { color: fill, width: 1, opacity: 0.22, type }, data: block,
        });
      }
    }
    const options = common(t, []);
    options.legend.data = tracks.map((track) => ({
      name: track.name, itemStyle: { opacity: 0 },
      lineStyle: { color: colour(track.arm), width: 2.2, type: DASHES[track.style % DASHES.length] },
    }));
    options.legend.itemWidth = 28;
    options.tooltip = {
      ...options.tooltip, trigger: "axis",
      formatter: (items) => {
        const seen = new Map();
        // The median is the first series of its name.
        for (const item of items) if (!seen.has(item.seriesName)) seen.set(item.seriesName, item.value);
        const head = items.length ? grouped.format(items[0].value[0]) + " s" : "";
        return tip([head, ...[...seen].map(([name, value]) => name + ": " + grouped.format(value[1]) + " " + y)]);
      },
    };
    return {
      height: 320,
      option: {
        ...options,
        grid: around(Math.max(...tracks.flatMap((track) => track.blocks.flat().map((point) => point[1]))), 58),
        xAxis: { ...valueAxis(t), name: "seconds since the start", nameLocation: "middle", nameGap: 28, splitLine: { show: false },
          nameTextStyle: { color: t.soft }, axisLine: { show: true, lineStyle: { color: t.soft } }, max: "dataMax" },
        yAxis: { ...valueAxis(t, y), min: 0 },
        series,
      },
    };
  }

  // What is closed has no width: its charts are drawn when it opens, and only then.
  const KINDS = { ratios, lines, times };
  const charts = [];
  const isOpen = (place) => !place.closest("details:not([open])");
  function draw(entry, width) {
    if (!isOpen(entry.place)) return;
    try {
      if (!entry.chart) {
        entry.chart = echarts.init(entry.place, null, { renderer: "svg" });
        report.drawn += 1;
      }
      const room = width && Math.min(width, entry.figure.wide ? width : width / 2 - 12);
      const built = KINDS[entry.figure.chart.kind](entry.figure, theme(), room || entry.place.clientWidth);
      entry.place.style.height = built.height + "px";
      entry.chart.resize({ width: room || "auto", height: built.height });
      entry.chart.setOption(built.option, { notMerge: true });
    } catch (error) {
      report.errors.push(entry.figure.id + ": " + error);
      console.error(error);
    }
  }
  function drawAll(width) {
    for (const entry of charts) draw(entry, width);
    for (const name of document.querySelectorAll("dt[data-arm]")) {
      name.parentElement.style.setProperty("--arm", colour(name.dataset.arm));
    }
  }
  for (const figure of data) charts.push({ figure, place: document.getElementById(figure.id), chart: null });
  for (const part of document.querySelectorAll(".experiment > details")) {
    part.addEventListener("toggle", () => {
      if (part.open) for (const entry of charts) if (part.contains(entry.place)) draw(entry);
    });
  }
  // A link to an experiment opens it.
  function openNamed() {
    const name = decodeURIComponent(location.hash.slice(1));
    const part = name && document.getElementById(name)?.closest("details");
    if (!part || part.open) return;
    part.open = true;
    part.scrollIntoView();
  }
  window.addEventListener("hashchange", openNamed);
  drawAll();
  openNamed();

  dark.addEventListener("change", () => drawAll());
  let last = window.innerWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (paper || window.innerWidth === last) return;
    last = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => drawAll(), 100);
  });
  // Paper is white, and as wide as A4 less its margins at 96 dots an inch.
  window.addEventListener("beforeprint", () => { paper = true; drawAll(660); });
  window.addEventListener("afterprint", () => { paper = false; drawAll(); });

  for (const button of document.querySelectorAll("button[data-download]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.download;
      const source = document.querySelector('script[data-file="' + name + '"]');
      const blob = new Blob([JSON.parse(source.textContent)], { type: "application/octet-stream" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }
})();
