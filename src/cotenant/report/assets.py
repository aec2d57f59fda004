"""The style and the script of the HTML report: no framework, no request to anywhere.

Colours are CSS variables with a light and a dark set; the script hands them to Plotly, and does so
again when the reader's preference changes.
"""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--text:#1b2330;--dim:#5b6675;--line:#dfe3e9;
--grid:#e8ebf0;--accent:#2563c9;--best:#e3f4ea;--best-text:#12683f;--stripe:#fafbfc;--faint:#b9c1cc;--code:#f0f2f5;--more:#a33a1d}
@media (prefers-color-scheme:dark){:root{--bg:#10141a;--card:#181e27;--text:#e4e9f0;--dim:#98a4b5;
--line:#2b3442;--grid:#28303c;--accent:#7fb0ff;--best:#173a2a;--best-text:#7fe0ae;--stripe:#1b222c;--faint:#4b5768;--code:#10151c;--more:#ff9e7a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main,header,footer{max-width:1480px;margin:0 auto;padding:0 24px}
header{padding-top:32px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.015em;overflow-wrap:anywhere}
h2{font-size:19px;margin:36px 0 12px;letter-spacing:-.01em}
h3{font-size:16px;margin:0}
.brand{color:var(--accent);font-weight:600;font-size:13px;letter-spacing:.06em;
text-transform:uppercase;margin:0 0 6px}
.facts{display:flex;flex-wrap:wrap;gap:6px 32px;margin:16px 0;padding:0}
.facts div{min-width:0}
.facts dt{color:var(--dim);font-size:12.5px}
.facts dd{margin:0;font-weight:600;overflow-wrap:anywhere}
pre{background:var(--code);border:1px solid var(--line);border-radius:8px;padding:10px 14px;margin:12px 0;
overflow-x:auto;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
white-space:pre-wrap;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:14px;margin:22px 0 0}
.card,figure,.box{background:var(--card);border:1px solid var(--line);border-radius:12px}
.card{padding:14px 18px}
.card p{margin:0}
.card .what{color:var(--dim);font-size:13px}
.card .value{font-size:25px;font-weight:650;letter-spacing:-.02em;line-height:1.3}
.card .who{font-weight:600;overflow-wrap:anywhere}
.card .beside{color:var(--dim);font-size:13px}
.box{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:8px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
tbody tr:last-child>*{border-bottom:0}
tbody tr:nth-child(even)>*{background:var(--stripe)}
th:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
th.text,td.text{text-align:left}
thead th{font-weight:600;color:var(--dim);font-size:13px;padding:0;vertical-align:bottom;
line-height:1.3}
thead small{display:block;font-weight:400;font-size:12px}
thead button{all:unset;cursor:pointer;display:block;padding:10px;width:100%;box-sizing:border-box}
thead button:hover{color:var(--text)}
th[aria-sort=ascending],th[aria-sort=descending]{color:var(--accent)}
th[aria-sort=ascending] span::after{content:" ▴"}
th[aria-sort=descending] span::after{content:" ▾"}
tbody tr td.best{background:var(--best);color:var(--best-text);font-weight:650}
td.less{color:var(--best-text);font-weight:600}
td.more{color:var(--more);font-weight:600}
table.plain thead th{padding:10px}
.swatch{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px;flex:none}
.note{color:var(--dim);font-size:13px;margin:8px 0 0}
details{margin:16px 0 0}
summary{cursor:pointer;font-weight:600;margin-bottom:10px}
.legend{position:sticky;top:0;z-index:5;display:flex;flex-wrap:wrap;gap:8px;background:var(--bg);
padding:10px 0;margin:0 0 6px}
.choice{display:inline-flex;align-items:center;gap:8px;font-size:13.5px}
.choice select{font:inherit;color:var(--text);background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:4px 8px;max-width:60vw}
#data{margin-left:auto}
.legend button,.tabs button{font:inherit;font-size:13.5px;color:var(--text);background:var(--card);
cursor:pointer;
border:1px solid var(--line);border-radius:999px;padding:4px 13px;display:inline-flex;align-items:center;
max-width:100%;overflow-wrap:anywhere;text-align:left}
.legend button[aria-pressed=false]{opacity:.45;text-decoration:line-through}
.tabs{display:flex;flex-wrap:wrap;gap:8px;margin:12px 0 4px}
.tabs button[aria-selected=true]{background:var(--accent);border-color:var(--accent);color:var(--card);
font-weight:600}
button:focus-visible,summary:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:16px}
figure{margin:0;padding:16px 18px 8px;min-width:0}
figure.wide{grid-column:1/-1}
figcaption p{color:var(--dim);font-size:13px;margin:2px 0 6px}
.plot{width:100%;min-height:340px}
footer{color:var(--dim);font-size:13px;padding-top:28px;padding-bottom:36px}
@media (max-width:980px){.grid{grid-template-columns:minmax(0,1fr)}main,header,footer{padding-left:14px;
padding-right:14px}}
@media print{.legend,.tabs{display:none}figure,.card,table{break-inside:avoid}body{background:#fff;font-size:12px}
.grid{grid-template-columns:minmax(0,1fr)}.box{overflow:visible}table{font-size:10px}th,td{padding:3px 5px}}
"""

JS = """
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('report-data').textContent);
  var hidden = {};
  var config = {displaylogo: false, responsive: true, toImageButtonOptions: {format: 'svg'},
    modeBarButtons: [['zoom2d', 'pan2d', 'resetScale2d', 'toImage']]};

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  }
  function axis(own) {
    return Object.assign({gridcolor: color('grid'), linecolor: color('line'), zerolinecolor: color('line'),
      ticks: 'outside', tickcolor: color('line'), ticklen: 4, automargin: true}, own);
  }
  function themed(layout) {
    var result = Object.assign({height: 340, margin: {l: 56, r: 14, t: 28, b: 48}}, layout, {
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: {family: getComputedStyle(document.body).fontFamily, size: 12.5, color: color('dim')},
      hoverlabel: {bgcolor: color('card'), bordercolor: color('line'), font: {color: color('text')}},
      modebar: {bgcolor: 'rgba(0,0,0,0)', color: color('faint'), activecolor: color('accent')},
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis)});
    result.shapes = (layout.shapes || []).map(function (shape) {
      return Object.assign({}, shape, {line: Object.assign({}, shape.line, {color: color('line')})});
    });
    return result;
  }
  function draw(chart) {
    var traces = chart.data.map(function (trace) {
      return Object.assign({}, trace, {visible: !hidden[trace.meta]});
    });
    Plotly.react('plot-' + chart.slug, traces, themed(chart.layout), config);
  }
  function drawGantt() {
    if (!data.gantt) { return; }
    var line = {width: 0.6, color: color('card')};
    var traces = data.gantt.lines[chosen].map(function (trace) {
      return Object.assign({}, trace, {marker: Object.assign({}, trace.marker, {line: line})});
    });
    Plotly.react('plot-gantt', traces, themed(data.gantt.layout), config);
  }
  var chosen = 0;
  function drawAll() { data.charts.forEach(draw); drawGantt(); }

  var select = document.getElementById('set');
  if (select) {
    select.addEventListener('change', function () {
      var chosenSet = data.sets[Number(select.value)];
      data.charts = data.charts.map(function (chart) {
        return chosenSet.charts.find(function (other) { return other.slug === chart.slug; }) || chart;
      });
      data.charts.forEach(draw);
    });
  }
  var save = document.getElementById('data');
  if (save) {
    save.addEventListener('click', function () {
      var link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([JSON.stringify(data)], {type: 'application/json'}));
      link.download = 'figures.json';
      link.click();
    });
  }

  document.querySelectorAll('.legend button[data-index]').forEach(function (button) {
    button.addEventListener('click', function () {
      var index = Number(button.dataset.index);
      hidden[index] = !hidden[index];
      button.setAttribute('aria-pressed', String(!hidden[index]));
      data.charts.forEach(draw);
    });
  });

  var tabs = Array.prototype.slice.call(document.querySelectorAll('.tabs button'));
  function choose(index, focus) {
    chosen = index;
    tabs.forEach(function (tab, i) {
      tab.setAttribute('aria-selected', String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
    });
    if (focus) { tabs[index].focus(); }
    drawGantt();
  }
  tabs.forEach(function (tab, i) {
    tab.addEventListener('click', function () { choose(i, false); });
    tab.addEventListener('keydown', function (event) {
      var step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (step) { event.preventDefault(); choose((i + step + tabs.length) % tabs.length, true); }
    });
  });

  function sortBy(table, column, down) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    function value(row) { return row.cells[column].dataset.value; }
    rows.sort(function (a, b) {
      var x = value(a), y = value(b);
      if (x === '' || y === '') { return (x === '') - (y === ''); }
      var order = isNaN(x) || isNaN(y) ? (x < y ? -1 : x > y ? 1 : 0) : x - y;
      return down ? -order : order;
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }
  document.querySelectorAll('table.sortable').forEach(function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (cell, column) {
      cell.querySelector('button').addEventListener('click', function () {
        var down = cell.getAttribute('aria-sort') === 'ascending';
        Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) {
          other.setAttribute('aria-sort', 'none');
        });
        cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        sortBy(table, column, down);
      });
    });
  });

  function unpacked(id) {
    var packed = atob(document.getElementById(id).textContent.trim());
    var bytes = Uint8Array.from(packed, function (letter) { return letter.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Response(stream).text();
  }
  unpacked('plotly-js').then(function (text) {
    var script = document.createElement('script');
    script.textContent = text;
    document.head.appendChild(script);
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
    drawAll();
  });
})();
"""
