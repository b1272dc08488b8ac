// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/html.hpp"

#include <algorithm>

#include "core/text/text.hpp"
#include "plot/svg.hpp"

namespace lockstep::report {

using plot::escaped;

namespace {

constexpr std::int64_t kCoarse = 128;  // images of fewer pixels a side are drawn in squares

// Every width of a window from 320 pixels on; colors are in variables, so that charts share them.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#f3f4f6;--card:#ffffff;--ink:#111827;--text:#374151;--muted:#6b7280;--line:#e5e7eb}
@media (prefers-color-scheme:dark){
:root{--page:#0f1319;--card:#181d25;--ink:#f3f4f6;--text:#d1d5db;--muted:#9ca3af;--line:#323a46}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:110rem;background:var(--page);color:var(--text);
font:15px/1.45 system-ui,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif}
h1{margin:.2rem 0 1rem;font-size:1.4rem;color:var(--ink);overflow-wrap:anywhere}
h2{margin:1.6rem 0 .6rem;font-size:1.1rem;color:var(--ink)}
p{margin:.4rem 0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));gap:.8rem;margin-bottom:.8rem}
.charts>div,.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem;min-width:0}
.charts svg{display:block;width:100%;height:auto}
.card{padding:.5rem .8rem;margin-bottom:.8rem;overflow-x:auto}
table{border-collapse:collapse;width:100%;max-width:60rem;font-size:.9rem}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;font-weight:400}
th{color:var(--muted);overflow-wrap:break-word}
tr+tr>*{border-top:1px solid var(--line)}
td{font-variant-numeric:tabular-nums;color:var(--ink);overflow-wrap:break-word}
.charts>.card{margin-bottom:0}
.wide svg{display:block;width:100%;max-width:54rem;min-width:40rem;height:auto;margin:auto}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.5rem,1fr));gap:.6rem;grid-auto-flow:dense}
figure{margin:0;padding:.4rem;background:var(--card);border:2px solid var(--line);border-radius:8px;text-align:center;
display:flex;flex-direction:column;justify-content:space-between}
figure.marked{border-color:var(--series-1)}
figure.broad{grid-column:span 2}
figure img{width:100%;height:auto;max-width:16rem;margin:auto}
img.coarse{image-rendering:pixelated}
figcaption{font-size:.8rem;line-height:1.3;padding-top:.3rem;color:var(--ink);font-variant-numeric:tabular-nums}
.field{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr));gap:.6rem;margin-bottom:.8rem}
.field.long{grid-template-columns:1fr}
.field figure{justify-content:flex-start}
.field img{max-width:none}
.field figcaption{padding:0 0 .3rem}
.bar{height:.7rem;margin-top:.4rem}
.scale{display:flex;justify-content:space-between;font-size:.8rem;color:var(--ink);font-variant-numeric:tabular-nums}
.marked figcaption{color:var(--series-1)}
summary{cursor:pointer;color:var(--muted);padding:.2rem 0}
)";

/// Escaped, with each line of the text on a line of its own.
std::string with_line_breaks(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) line = escaped(line);
  return joined(lines, "<br/>");
}

std::string row_of(const std::vector<std::string>& cells, bool is_head) {
  std::string row = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string tag = is_head || i == 0 ? "th" : "td";  // the first cell names the row
    row += "<" + tag + ">" + with_line_breaks(cells[i]) + "</" + tag + ">";
  }
  return row + "</tr>\n";
}

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  const std::string name = escaped(title);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>" +
         name + "</title>\n<style>" + kStyle + plot::page_style() + "</style>\n</head>\n<body>\n<h1>" + name +
         "</h1>\n" + body + "</body>\n</html>\n";
}

std::string html_section(const std::string& heading, const std::string& content) {
  return content.empty() ? "" : "<section>\n<h2>" + escaped(heading) + "</h2>\n" + content + "</section>\n";
}

std::string html_charts(const std::vector<std::string>& svgs, const std::string& beside) {
  std::string charts;
  for (const std::string& svg : svgs) charts += "<div>" + svg + "</div>\n";
  charts += beside;
  return charts.empty() ? "" : "<div class=\"charts\">\n" + charts + "</div>\n";
}

std::string html_lines(const std::vector<plot::LineChart>& charts) {
  std::vector<std::string> svgs;
  for (const plot::LineChart& chart : charts) svgs.push_back(plot::line_chart(chart));
  return html_charts(svgs);
}

std::string html_wide_chart(const std::string& svg) { return "<div class=\"card wide\">" + svg + "</div>\n"; }

std::string html_figure(const Figure& figure) {
  std::string classes = figure.is_marked ? "marked" : "";
  if (2 * figure.width > 3 * figure.height) classes += " broad";
  const std::string look = std::max(figure.width, figure.height) < kCoarse ? " class=\"coarse\"" : "";
  const std::string caption = (figure.is_marked ? "\u2717 " : "") + with_line_breaks(figure.caption);
  return "<figure class=\"" + classes + "\"><img" + look + " alt=\"" + escaped(figure.alt) + "\" width=\"" +
         std::to_string(figure.width) + "\" height=\"" + std::to_string(figure.height) +
         "\" src=\"data:image/png;base64," + escaped(figure.png) + "\"/><figcaption>" + caption +
         "</figcaption></figure>\n";
}

std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::string table = head.empty() ? "" : row_of(head, true);
  for (const auto& row : rows) table += row_of(row, false);
  return "<div class=\"card\"><table>\n" + table + "</table></div>\n";
}

std::string html_details(const std::string& summary, const std::string& content) {
  if (content.empty()) return "";
  return "<details><summary>" + escaped(summary) + "</summary>\n" + content + "</details>\n";
}

}  // namespace lockstep::report
