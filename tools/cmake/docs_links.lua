-- Links between pages lead to their HTML. What is outside of docs/ has no page: of such a link only the text stays.
function Link(link)
  if link.target:match("^%.%./") then return link.content end
  link.target = link.target:gsub("README%.md", "index.html"):gsub("%.md", ".html")
  return link
end
